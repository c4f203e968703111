"""From a request to compiled steps: what is checked, how chains advance, how averages are kept."""
