"""Use cases without ROS: identify a log, plan a motion, verify, check a configuration, judge a run."""
