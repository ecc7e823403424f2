"""The identification of an arm as a page and as files of other programs."""
