#!/bin/sh
# A custom runtime that keeps each instance's version in a file of its working directory. Tests put
# it under stress: a file fail-apply or fail-fetch holds the exit code of the next call, a named pipe
# hang makes calls hang after opening it.
set -eu
at=$PVN_RELEASE_CHANNEL
[ "$PVN_INSTANCE" = main ] || at=$at-$PVN_INSTANCE
state=$at.version

if [ -p hang ]; then
	exec 3>hang
	exec tail -f /dev/null
fi
if [ -f "fail-$1" ]; then
	code=$(cat "fail-$1")
	rm "fail-$1"
	echo "failing as the test asked" >&2
	exit "$code"
fi

case $1 in
apply)
	[ "$(cat "$state" 2>/dev/null)" = "$PVN_SERVICE_VERSION" ] && exit 0
	echo "$PVN_SERVICE_VERSION" >>"$at.log"
	echo "$PVN_SERVICE_VERSION" >"$state.new"
	mv "$state.new" "$state"
	;;
remove)
	rm -f "$state"
	;;
fetch)
	versions=
	status=PENDING
	if [ -f "$state" ]; then
		versions='{"version": "'$(cat "$state")'", "active": true}'
		status=SUCCEEDED
	fi
	echo '{"objects": [{"name": "'"$PVN_SERVICE"'", "objectType": "file", "status": "'$status'", "versions": ['"$versions"']}]}'
	;;
esac
