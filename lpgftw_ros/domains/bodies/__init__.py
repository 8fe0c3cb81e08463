"""MuJoCo bodies: HalfCheetah, Hopper and Walker2d with other gravity or body parts."""
