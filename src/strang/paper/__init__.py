"""Chen, Ding & Carin (2015), reproduced: one file per figure or table, with a verdict on every claim."""
