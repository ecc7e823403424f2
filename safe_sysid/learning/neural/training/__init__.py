"""Training of hybrid models. Only these modules import torch (extra ``learn``); no control process imports them."""
