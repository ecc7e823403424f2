"""What is made of trials: series, tables and figures beside the paper's."""
