"""What nodes of the tests are forked with, beside what those of a demo are: gains that many of them ask for."""

from safe_sysid.control.gains.design import design_gains
from safe_sysid.robot import load_robot

design_gains(load_robot("three_joint"), lockstep=True)
