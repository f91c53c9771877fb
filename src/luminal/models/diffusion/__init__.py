"""Images from texts by latent diffusion: a U-Net takes noise away, a VAE makes pixels of the rest.

Rombach et al., arXiv 2112.10752. In order: `blocks.py` what both networks are built of, `unet.py`,
`vae.py`, `samplers.py` the numbers of each step, `text_to_image.py` what runs them.
"""
