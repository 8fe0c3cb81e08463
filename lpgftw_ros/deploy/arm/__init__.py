"""The arm: kinematics, its simulated plant, its side of the contract."""
