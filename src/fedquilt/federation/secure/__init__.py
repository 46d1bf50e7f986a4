"""Secure aggregation (SecAgg): the coordinator learns the sum of the sites' uploads and no single one.

The protocol is that of Bonawitz et al. (CCS 2017) in the variant for servers that cheat, as Flower's SecAgg+ has it with every
site everyone's neighbour. Keys, signatures, key agreement, encryption and secret sharing are Flower's building blocks. Masks
are the key stream of AES-256 in counter mode:

1. *setup*: each site makes two key pairs for this one sum, and sends the public keys, signed with its lasting key.
2. *share*: each site gets everyone's public keys. It draws a seed, splits the seed and its first private key into one share a
   site (Shamir; t of n shares give the secret back, fewer give nothing), and encrypts each share for the site it is meant for.
3. *round*: each site gets the shares meant for it, trains, and sends its upload as whole numbers modulo 2^64, masked by its
   seed and by a mask it has in common with each other site. The common masks cancel in the sum.
4. *confirm*: the coordinator says whose masked upload has come, and each of these sites signs the list.
5. *unmask*: the coordinator shows each site t signatures of the list that it has signed itself. The site sends its shares: of
   the seeds of those on the list, and of the private keys of the others; never both of one site.

`fixed_point` turns uploads into whole numbers, `keys` and `masks` wrap the building blocks, `participant` is a site's part,
`opening` is the coordinator's.
"""
