"""Code that several commands share: types of arguments, options of logs, trials and where they run."""
