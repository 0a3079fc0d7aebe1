#!/bin/sh
# Before the removal, and not before an upgrade: the units stop. dpkg says "remove", rpm counts the versions that stay.
set -e
if [ "$1" = remove ] || [ "$1" = 0 ]; then
	if [ -d /run/systemd/system ]; then
		systemctl disable --now converge-worker.service converge-serve.service
	fi
fi
