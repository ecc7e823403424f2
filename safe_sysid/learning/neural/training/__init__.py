"""What trains hybrid models: the only modules that import torch (extra ``learn``), and no control process them."""
