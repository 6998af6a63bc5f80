"""The optimizers that runs can name: SNOpt's arms and the methods it is compared with."""
