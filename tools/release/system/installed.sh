#!/bin/sh
# After the installation: the user, and the units. They are not started: /etc/converge/converge.env says where the server is.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers converge.conf
elif ! getent passwd converge >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/converge --shell /usr/sbin/nologin converge
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
