"""Results of trials: series, tables and figures beside the paper's."""
