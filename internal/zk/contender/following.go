package contender

import (
	"fmt"
	"strconv"
	"strings"
)

// counterDigits is the length of the counter with which a GUID ends, in hex digits: see Following.
const counterDigits = 8

// NextGUID returns the GUID that this library assigns after guid: the counter at its end is greater by one.
func NextGUID(guid [guidLength / 2]byte) [guidLength / 2]byte {
	for i := len(guid) - 1; i >= len(guid)-counterDigits/2; i-- {
		if guid[i]++; guid[i] != 0 {
			break
		}
	}
	return guid
}

// Following returns the name that the contender created directly before own has if its GUID follows that of the
// earlier contender name. It is empty if name is not that of a contender of this library, or if own has no
// predecessor.
func Following(name, own string) string {
	number, ok := Sequence(own)
	if _, known := Sequence(name); !ok || !known || number <= 0 || !IsOurs(name) {
		return ""
	}
	guid := GUID(name)
	end := strings.Index(name, guid) + len(guid)
	counter, err := strconv.ParseUint(name[end-counterDigits:end], 16, 32)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s%0*x%s%0*d", name[:end-counterDigits], counterDigits, uint32(counter)+1, name[end:len(name)-digits], digits, number-1)
}
