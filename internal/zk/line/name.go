package line

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Naming says how the znodes of a line are named, so that programs of other
// libraries can stand in the same one. The zero value is CuratorLatch.
type Naming string

const (
	// CuratorLatch is the naming of Apache Curator's LeaderLatch:
	// _c_<uuid>-latch-<sequence>.
	CuratorLatch Naming = ""
	// Kazoo is the naming of kazoo's Lock and Election:
	// <32 hex digits>__lock__<sequence>.
	Kazoo Naming = "kazoo"
	// CuratorLock is that of Curator's InterProcessMutex: _c_<uuid>-lock-.
	CuratorLock Naming = "curator-lock"
	// CuratorWrite and CuratorRead are those of its InterProcessReadWriteLock:
	// _c_<uuid>-__WRIT__ and _c_<uuid>-__READ__.
	CuratorWrite Naming = "curator-write"
	CuratorRead  Naming = "curator-read"
	// CuratorLease is that of the leases of its InterProcessSemaphoreV2:
	// _c_<uuid>-lease-.
	CuratorLease Naming = "curator-lease"
	// KazooRead is that of kazoo's ReadLock: <32 hex digits>__rlock__. Its
	// WriteLock is named as its Lock is.
	KazooRead Naming = "kazoo-read"
	// KazooLease is that of the leases of its Semaphore: 32 hex digits alone,
	// without a sequence number.
	KazooLease Naming = "kazoo-lease"
)

// The beginnings of the namings of hand-written elections, before their prefix.
const (
	plainNaming     = "prefix:"
	protectedNaming = "protected:"
)

// Prefix is the naming of hand-written elections: <prefix><sequence>. Such a name
// has no GUID (plain.go).
func Prefix(prefix string) Naming { return Naming(plainNaming + prefix) }

// ProtectedPrefix is the naming of hand-written elections whose programs create
// their znodes with CreateProtectedEphemeralSequential of go-zookeeper:
// _c_<32 hex digits>-<prefix><sequence>.
func ProtectedPrefix(prefix string) Naming { return Naming(protectedNaming + prefix) }

// bases are what stands between the GUID and the sequence number.
var bases = map[Naming]string{
	CuratorLatch: "-latch-", Kazoo: "__lock__", CuratorLock: "-lock-",
	CuratorWrite: "-__WRIT__", CuratorRead: "-__READ__", CuratorLease: "-lease-",
	KazooRead: "__rlock__", KazooLease: "",
}

// plain returns the prefix of a naming without a GUID.
func (n Naming) plain() (prefix string, ok bool) { return strings.CutPrefix(string(n), plainNaming) }

// Check returns what is wrong with a naming for an election; nil if nothing is.
func (n Naming) Check() error {
	prefix, ok := n.plain()
	if !ok {
		prefix, ok = strings.CutPrefix(string(n), protectedNaming)
	}
	switch {
	case n == CuratorLatch, n == Kazoo:
		return nil
	case !ok:
		return fmt.Errorf("unknown naming %q", string(n))
	case strings.Contains(prefix, "/"):
		return fmt.Errorf("prefix %q contains a slash", prefix)
	}
	if _, ok := numberOf(prefix + "0000000000"); !ok {
		return fmt.Errorf("prefix %q is reserved", prefix)
	}
	return nil
}

// sequenceOf returns the sequence number in a name that one of the known libraries
// gives; ok is false for all other names. The counter is a signed 32-bit number that can overflow to
// -2147483648 (ZOOKEEPER-2944), so it may begin with a minus sign.
func sequenceOf(name string) (sequence int32, ok bool) {
	const digits = 10
	i := len(name) - digits
	if i < 0 {
		return 0, false
	}
	// By hand: a line of thousands is read whenever somebody joins it.
	var n int64
	number, head := name[i:], name[:i]
	negative := number[0] == '-'
	switch {
	case negative:
		number = number[1:]
	case i > 0 && head[i-1] == '-' && contends(head[:i-1]):
		negative, head = true, head[:i-1]
	}
	for _, c := range []byte(number) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	if negative {
		n = -n
	}
	if n != int64(int32(n)) || !contends(head) {
		return 0, false
	}
	return int32(n), true
}

// contends reports whether head is what the known libraries put before the
// sequence number: Curator's LeaderLatch, Curator's and go-zookeeper's locks,
// kazoo's, and Comcast's go-leaderelection. All else is foreign.
func contends(head string) bool {
	for _, base := range knownBases {
		if strings.HasSuffix(head, base) {
			return true
		}
	}
	return withoutGUID(head)
}

// knownBases are the bases that tell a contender.
var knownBases = [...]string{"-latch-", "__lock__", "-lock-", "-__WRIT__", "-__READ__", "-lease-", "__rlock__"}

// withoutGUID reports whether head is one that a known library uses without a GUID.
func withoutGUID(head string) bool {
	switch head {
	case "latch-", "lock-", "lease-", "__WRIT__", "__READ__", "le_":
		return true
	}
	return false
}

// numberOf returns the sequence number in the name of any znode that may be a
// contender: those that a known library gives, and all that end in ten digits, as
// those of hand-written elections and locks do. Whether the latter is a contender
// depends on its znode, which must be ephemeral. What this library itself creates
// in the node of a line is none.
func numberOf(name string) (sequence int32, ok bool) {
	if sequence, ok := sequenceOf(name); ok {
		return sequence, true
	}
	const digits = 10
	i := len(name) - digits
	if i < 0 || IsLimit(name) || isHeldMark(name) {
		return 0, false
	}
	var n int64
	for _, c := range []byte(name[i:]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return int32(n), n <= math.MaxInt32
}

// Recognized reports whether a contender's name is one that a known library gives.
// Any other contender's znode must be ephemeral to be one.
func Recognized(name string) bool {
	_, ok := sequenceOf(name)
	return ok
}

// The beginnings of the names of the marks that a holder leaves for a time after it
// has lost a lock. A GUID follows, which may end in ten digits.
const (
	HeldToWrite = "held-w-"
	HeldToRead  = "held-r-"
)

func isHeldMark(name string) bool {
	return strings.HasPrefix(name, HeldToWrite) || strings.HasPrefix(name, HeldToRead)
}

// Reads reports whether name is that of a reader, whom other readers let by.
func Reads(name string) bool {
	const digits = 10
	if len(name) < digits {
		return false
	}
	head := strings.TrimSuffix(name[:len(name)-digits], "-") // a negative number's sign
	return strings.HasSuffix(head, bases[CuratorRead]) || head == "__READ__" || strings.HasSuffix(head, bases[KazooRead])
}

// before reports whether a was created before b: serial number arithmetic
// (RFC 1982), right while fewer than 2^31 znodes were created between the
// oldest living contender and the newest.
func before(a, b int32) bool { return a-b < 0 }

// exhausted reports whether a new znode's number comes from a counter at its end.
// Up to release 3.5 a server goes on with -2147483648. Since 3.6 its counter
// stays at 2147483647 and gives that number again and again, and negative ones
// while creates before are under way: neither tells any more who came first, and
// of several with one number each would take itself for the first.
func (n Naming) exhausted(name string) bool {
	sequence, _ := sequenceOf(name)
	if prefix, ok := n.plain(); ok {
		// The prefix may end with what looks like a number's sign.
		number, err := strconv.ParseInt(strings.TrimPrefix(name, prefix), 10, 32)
		if err != nil {
			return true
		}
		sequence = int32(number)
	}
	return sequence < 0 || sequence == math.MaxInt32
}

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
	if prefix, ok := n.plain(); ok {
		return prefix
	}
	if prefix, ok := strings.CutPrefix(string(n), protectedNaming); ok {
		return "_c_" + guid + "-" + prefix
	}
	if n == Kazoo || n == KazooRead || n == KazooLease {
		return guid + bases[n]
	}
	return "_c_" + guid[:8] + "-" + guid[8:12] + "-" + guid[12:16] + "-" + guid[16:20] + "-" + guid[20:] + bases[n]
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

// GUID is the part of a contender's name that no other contender's has.
func GUID(name string) string {
	length := guidLength
	guid, dashed := strings.CutPrefix(name, "_c_")
	if dashed {
		length += 4
	}
	return guid[:min(length, len(guid))]
}
