#!/bin/sh
# progress runs a command, and prints every 20 seconds for how long it has run, and which tests, compilers and
# checks run on this machine. It needs the directory /proc of Linux, and prints only the time without it.
seconds=0
while :; do
	sleep 20 </dev/null >/dev/null 2>&1
	seconds=$((seconds + 20))
	running=$(cat /proc/[0-9]*/comm 2>/dev/null |
		grep -E '\.test$|^(compile|link|vet|cgo|cc1|ld|gofumpt|staticcheck|apt-get|dpkg|docker)$' |
		sort | uniq -c | awk '{printf "%s%s%s", sep, $2, ($1 > 1 ? " (" $1 ")" : ""); sep = ", "}')
	printf '%d min %02d s: %s\n' $((seconds / 60)) $((seconds % 60)) "$running"
done &
trap 'kill $! 2>/dev/null' EXIT
trap 'exit 130' INT TERM
"$@"
