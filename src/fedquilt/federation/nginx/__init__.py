"""nginx between SuperNodes and the SuperLink.

proxy.py, proxy.conf   at the coordinator: only what SuperNodes call passes from the public address to the SuperLink
relay.py, relay.conf   at a site, where the proxy asks for certificates, which a SuperNode cannot show itself
config_files.py        what both need: filling in the files, writing folders, the command that starts nginx
"""
