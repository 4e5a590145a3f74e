package protocol

import (
	"strconv"
	"strings"
)

// An epoch is a number, which grows each time an ended election is begun anew, a dot,
// and what is random. A record that was lost and made anew has the number it had.

// Generation is the number.
func Generation(epoch string) uint64 {
	number, _, _ := strings.Cut(epoch, ".")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Epoch makes one.
func Epoch(generation uint64, random string) string {
	return strconv.FormatUint(generation, 10) + "." + random
}
