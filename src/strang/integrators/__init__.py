"""Words over the exactly solvable pieces of a dynamics become steps; and the steps that are not words."""
