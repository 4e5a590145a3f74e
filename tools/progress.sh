#!/bin/sh
# progress.sh SECONDS COMMAND [ARGUMENT ...] runs a command, and prints every so many seconds for how long it has
# run, and which tests, compilers and checks run, each compiler with its package. It finds them in the directory
# /proc of Linux, in its own process group, and prints only the time without it.
interval=$1
shift

# running prints what runs, in one line.
running() {
	for stat in /proc/[0-9]*/stat; do
		read -r pid name _ _ other _ <"$stat" && [ "$other" = "$group" ] || continue
		case $name in
		"(compile)") tr '\0' '\n' <"/proc/$pid/cmdline" | sed -n '/^-p$/{n;s/^/compile /p;q;}' ;;
		*.test\) | "(link)" | "(vet)" | "(cgo)" | "(cc1)" | "(ld)" | "(gofumpt)" | "(staticcheck)" | "(apt-get)" | "(dpkg)" | "(docker)")
			name=${name#\(} && echo "${name%\)}" ;;
		esac
	done 2>/dev/null | sort | uniq -c | awk '{printf "%s%s%s%s", sep, $2, ($3 ? " " $3 : ""), ($1 > 1 ? " (" $1 ")" : ""); sep = ", "}'
}

read -r _ _ _ _ group _ 2>/dev/null <"/proc/$$/stat"
seconds=0
while :; do
	sleep "$interval" </dev/null >/dev/null 2>&1
	seconds=$((seconds + interval))
	printf '%d min %02d s: %s\n' $((seconds / 60)) $((seconds % 60)) "$(running)" | sed 's/^0 min 0*//'
done &
trap 'kill $! 2>/dev/null' EXIT
trap 'exit 130' INT TERM
"$@"
