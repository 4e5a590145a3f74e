package line

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
)

// Naming says how the znodes of a line are named, so that programs of other
// libraries can stand in the same one.
type Naming int

const (
	// CuratorLatch is the naming of Apache Curator's LeaderLatch:
	// _c_<uuid>-latch-<sequence>.
	CuratorLatch Naming = iota
	// Kazoo is the naming of kazoo's Lock and Election:
	// <32 hex digits>__lock__<sequence>.
	Kazoo
)

// sequenceOf returns the sequence number of a contender's znode; ok is false
// for foreign names. The counter is a signed 32-bit number that overflows to
// -2147483648 (ZOOKEEPER-2944), so it may begin with a minus sign.
func sequenceOf(name string) (sequence int32, ok bool) {
	const digits = 10
	i := len(name) - digits
	if i < 0 {
		return 0, false
	}
	if i > 0 && name[i-1] == '-' && contends(name[:i-1]) {
		i--
	} else if !contends(name[:i]) {
		return 0, false
	}
	n, err := strconv.ParseInt(name[i:], 10, 32)
	return int32(n), err == nil
}

// contends reports whether head is what the known libraries put before the
// sequence number: Curator's LeaderLatch, Curator's and go-zookeeper's locks,
// kazoo's, and Comcast's go-leaderelection. All else is foreign.
func contends(head string) bool {
	for _, base := range []string{"latch-", "lock-"} {
		if rest, ok := strings.CutSuffix(head, base); ok && (rest == "" || strings.HasSuffix(rest, "-")) {
			return true
		}
	}
	return strings.HasSuffix(head, "__lock__") || head == "le_"
}

// before reports whether a was created before b: serial number arithmetic
// (RFC 1982), right while fewer than 2^31 znodes were created between the
// oldest living contender and the newest.
func before(a, b int32) bool { return a-b < 0 }

// mark is what tells this library's contenders from others in a name that is
// of the same shape: where a random UUID has version 4 and twelve random bits,
// ours has version 8 (RFC 9562, "custom") and these.
const mark = "8e1e"

const (
	guidLength = 32
	markAt     = 12 // in hex digits
)

// newGUID returns 32 hex digits, unlike any other and marked as ours.
func newGUID() string {
	var b [guidLength / 2]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	b[8] = b[8]&0x3f | 0x80
	id := hex.EncodeToString(b[:])
	return id[:markAt] + mark + id[markAt+len(mark):]
}

// prefix is the name of a new znode up to its sequence number.
func (n Naming) prefix(guid string) string {
	if n == Kazoo {
		return guid + "__lock__"
	}
	return "_c_" + guid[:8] + "-" + guid[8:12] + "-" + guid[12:16] + "-" + guid[16:20] + "-" + guid[20:] + "-latch-"
}

// ours reports whether a contender is of this library, in either naming. A
// random name of another library is taken for one once in 2^18.
func ours(name string) bool {
	guid, dashed := strings.CutPrefix(name, "_c_")
	if dashed {
		const markDashed = markAt + 2
		return len(guid) > 36 && guid[8] == '-' && guid[markDashed:markDashed+len(mark)] == mark
	}
	return len(guid) > guidLength && strings.HasPrefix(guid[guidLength:], "__lock__") && guid[markAt:markAt+len(mark)] == mark
}
