package contender

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Naming selects how the znodes of a queue are named, as by other libraries that contend in the same queue. The
// zero value is CuratorLatch.
type Naming string

const (
	// CuratorLatch is the naming of Apache Curator's LeaderLatch: _c_<uuid>-latch-<sequence>.
	CuratorLatch Naming = ""
	// Kazoo is the naming of kazoo's Lock and Election: <32 hex digits>__lock__<sequence>.
	Kazoo Naming = "kazoo"
	// CuratorLock is the naming of Curator's InterProcessMutex: _c_<uuid>-lock-.
	CuratorLock Naming = "curator-lock"
	// CuratorWrite and CuratorRead are the namings of Curator's InterProcessReadWriteLock: _c_<uuid>-__WRIT__
	// and _c_<uuid>-__READ__.
	CuratorWrite Naming = "curator-write"
	CuratorRead  Naming = "curator-read"
	// CuratorLease is the naming of the leases of Curator's InterProcessSemaphoreV2: _c_<uuid>-lease-.
	CuratorLease Naming = "curator-lease"
	// KazooRead is the naming of kazoo's ReadLock: <32 hex digits>__rlock__. kazoo's WriteLock uses the names
	// of its Lock.
	KazooRead Naming = "kazoo-read"
	// KazooLease is the naming of the leases of kazoo's Semaphore: 32 hex digits without a sequence number.
	KazooLease Naming = "kazoo-lease"
)

// The namings of hand-written elections begin with one of these, followed by their prefix.
const (
	plainNaming     = "prefix:"
	protectedNaming = "protected:"
)

// Prefix is the naming of hand-written elections: <prefix><sequence>, without a GUID.
func Prefix(prefix string) Naming { return Naming(plainNaming + prefix) }

// ProtectedPrefix is the naming of hand-written elections whose programs create their znodes with
// CreateProtectedEphemeralSequential of go-zookeeper: _c_<32 hex digits>-<prefix><sequence>.
func ProtectedPrefix(prefix string) Naming { return Naming(protectedNaming + prefix) }

// NamingOf returns the naming of a hand-written election or lock, given the prefix of its znodes: Prefix, or,
// if it begins with "_c_*-", ProtectedPrefix.
func NamingOf(prefix string) Naming {
	if protected, ok := strings.CutPrefix(prefix, "_c_*-"); ok {
		return ProtectedPrefix(protected)
	}
	return Prefix(prefix)
}

// Base returns the text between the GUID and the sequence number in the names of a naming.
func (n Naming) Base() string { return bases[n] }

var bases = map[Naming]string{
	CuratorLatch: "-latch-", Kazoo: "__lock__", CuratorLock: "-lock-",
	CuratorWrite: "-__WRIT__", CuratorRead: "-__READ__", CuratorLease: "-lease-",
	KazooRead: "__rlock__", KazooLease: "",
}

// Plain returns the prefix of a naming without a GUID. ok is false for all other namings.
func (n Naming) Plain() (prefix string, ok bool) { return strings.CutPrefix(string(n), plainNaming) }

// HasGUID reports whether the names of a naming contain a GUID, so that no two znodes have the same name.
func (n Naming) HasGUID() bool { return !strings.HasPrefix(string(n), plainNaming) }

// Sequential reports whether the names of a naming end in a sequence number.
func (n Naming) Sequential() bool { return n != KazooLease }

// Check returns an error if the naming cannot be used for an election.
func (n Naming) Check() error {
	prefix, ok := n.Plain()
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
	if _, ok := sequenceOfAny(prefix + "0000000000"); !ok {
		return fmt.Errorf("prefix %q is reserved", prefix)
	}
	return nil
}

// digits is the length of a sequence number. The server adds a sign to negative numbers.
const digits = 10

// Sequence returns the sequence number in a name that a known library assigns. ok is false for all other names.
// The server's counter can overflow to -2147483648 (ZOOKEEPER-2944), so the number may begin with a minus sign.
func Sequence(name string) (sequence int32, ok bool) {
	i := len(name) - digits
	if i < 0 {
		return 0, false
	}
	number, head := name[i:], name[:i]
	negative := number[0] == '-'
	switch {
	case negative:
		number = number[1:]
	case i > 0 && head[i-1] == '-' && isKnownHead(head[:i-1]):
		negative, head = true, head[:i-1]
	}
	n, ok := parseDigits(number)
	if negative {
		n = -n
	}
	if !ok || n != int64(int32(n)) || !isKnownHead(head) {
		return 0, false
	}
	return int32(n), true
}

// parseDigits parses decimal digits, faster than package strconv: a listing of a long queue has thousands of
// names.
func parseDigits(s string) (n int64, ok bool) {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

// isKnownHead reports whether a known library puts head before the sequence number: Curator's LeaderLatch, the
// locks of Curator, go-zookeeper and kazoo, and Comcast's go-leaderelection.
func isKnownHead(head string) bool {
	for _, base := range knownBases {
		if strings.HasSuffix(head, base) {
			return true
		}
	}
	switch head {
	case "latch-", "lock-", "lease-", "__WRIT__", "__READ__", "le_": // the bases of names without a GUID
		return true
	}
	return false
}

var knownBases = [...]string{"-latch-", "__lock__", "-lock-", "-__WRIT__", "-__READ__", "-lease-", "__rlock__"}

// sequenceOfAny returns the sequence number in the name of a znode that may be a contender: the names of
// Sequence, and all others that end in ten digits, because hand-written elections and locks use such names,
// except those that this library reserves. Whether the latter is a contender depends on its znode, which must
// be ephemeral.
func sequenceOfAny(name string) (sequence int32, ok bool) {
	if sequence, ok := Sequence(name); ok {
		return sequence, true
	}
	i := len(name) - digits
	if i < 0 || isReserved(name) {
		return 0, false
	}
	n, ok := parseDigits(name[i:])
	return int32(n), ok && n <= math.MaxInt32
}

// Recognized reports whether a known library assigns a contender's name. The znode of any other contender must
// be ephemeral.
func Recognized(name string) bool {
	_, ok := Sequence(name)
	return ok
}

// The beginnings of names that this library reserves for its other znodes in a queue: the markers that the
// holder of a lock leaves if it loses the lock, followed by a GUID that may end in ten digits, and the limit of
// a semaphore.
const (
	HeldToWrite = "held-w-"
	HeldToRead  = "held-r-"
	LimitPrefix = "limit-"
)

func isReserved(name string) bool {
	if strings.HasPrefix(name, HeldToWrite) || strings.HasPrefix(name, HeldToRead) {
		return true
	}
	_, _, limit := ParseLimit(name)
	return limit
}

// ParseLimit returns the limit and the sequence number in the name of a znode that stores the limit of a
// semaphore, limit-<limit>-<sequence>.
func ParseLimit(name string) (limit int, sequence int32, ok bool) {
	rest, ok := strings.CutPrefix(name, LimitPrefix)
	if !ok {
		return 0, 0, false
	}
	count, number, ok := strings.Cut(rest, "-")
	if !ok {
		return 0, 0, false
	}
	limit, ok = ParseCount(count)
	if !ok || len(number) != digits && (len(number) != digits+1 || number[0] != '-') {
		return 0, 0, false
	}
	s, err := strconv.ParseInt(number, 10, 32)
	return limit, int32(s), err == nil
}

// MaxCount is the greatest limit of a semaphore and the greatest number of leases: nine digits.
const MaxCount = 999_999_999

// ParseCount parses a number from 1 to MaxCount. It accepts only the canonical form.
func ParseCount(s string) (n int, ok bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 1 && n <= MaxCount && strconv.Itoa(n) == s
}

// Reads reports whether name is that of a reader of a read-write lock.
func Reads(name string) bool {
	if len(name) < digits {
		return false
	}
	head := strings.TrimSuffix(name[:len(name)-digits], "-") // the sign of a negative number
	return strings.HasSuffix(head, bases[CuratorRead]) || head == "__READ__" || strings.HasSuffix(head, bases[KazooRead])
}

// IsBefore reports whether sequence number a was assigned before b, by serial number arithmetic (RFC 1982):
// correct while fewer than 2^31 znodes were created between the oldest and the newest contender.
func IsBefore(a, b int32) bool { return a-b < 0 }

// isExhausted reports whether name has the number of a counter that has reached its limit. Servers up to release
// 3.5 continue with -2147483648. Since 3.6 the counter stays at 2147483647: the server assigns that number
// repeatedly, and negative numbers while earlier creates are in flight. Neither number shows who came first.
func (n Naming) isExhausted(name string) bool {
	sequence, _ := Sequence(name)
	prefix, handWritten := n.Plain()
	if protected, ok := strings.CutPrefix(string(n), protectedNaming); ok {
		prefix, handWritten = protected, true
		_, name, _ = strings.Cut(name, "-") // the prefix follows the GUID
	}
	if handWritten {
		// Sequence does not recognize all prefixes, and a prefix may end in a hyphen, like the sign of a number.
		number, _ := strconv.ParseInt(strings.TrimPrefix(name, prefix), 10, 32)
		sequence = int32(number)
	}
	return sequence < 0 || sequence == math.MaxInt32
}

// mark distinguishes the contenders of this library from others whose names have the same form. A random UUID
// has version 4 and twelve random bits at this place; ours has version 8 (RFC 9562, "custom") and fixed bits.
const mark = "8e1e"

const (
	guidLength = 32
	markAt     = 12 // the position of the mark, in hex digits
)

// GUIDOf returns the GUID, in hex, that consists of random bytes and the mark of this library.
func GUIDOf(random [guidLength / 2]byte) string {
	random[8] = random[8]&0x3f | 0x80
	var id [guidLength]byte
	hex.Encode(id[:], random[:])
	copy(id[markAt:], mark)
	return string(id[:])
}

// NamePrefix returns the name of a new znode without its sequence number.
func (n Naming) NamePrefix(guid string) string {
	if prefix, ok := n.Plain(); ok {
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

// IsOurs reports whether this library has created the znode of a contender. It is wrong for one in 2^18 random
// names.
func IsOurs(name string) bool {
	guid, dashed := strings.CutPrefix(name, "_c_")
	if dashed {
		const markDashed = markAt + 2
		return len(guid) > 36 && guid[8] == '-' && guid[markDashed:markDashed+len(mark)] == mark
	}
	return len(guid) > guidLength && strings.HasPrefix(guid[guidLength:], "__lock__") && guid[markAt:markAt+len(mark)] == mark
}

// GUID returns the part of a contender's name that no other contender's name has.
func GUID(name string) string {
	length := guidLength
	guid, dashed := strings.CutPrefix(name, "_c_")
	if dashed {
		length += 4
	}
	return guid[:min(length, len(guid))]
}

// Order sorts the children of a queue: its contenders, the head of the queue first, and all other children.
// tombstone is the name of the child that marks the queue as ended; neither result contains it, and ended reports
// whether it exists. A contender whose name is not [Recognized] is a contender only if its znode is ephemeral.
func Order(children []string, tombstone string) (contenders, others []string, ended bool) {
	type contender struct {
		name     string
		sequence int32
	}
	var found []contender
	for _, name := range children {
		sequence, ok := sequenceOfAny(name)
		switch {
		case ok:
			found = append(found, contender{name, sequence})
		case name == tombstone:
			ended = true
		default:
			others = append(others, name)
		}
	}
	slices.SortFunc(found, func(a, b contender) int {
		// The difference may overflow, which is intended (see IsBefore).
		return cmp.Or(int(a.sequence-b.sequence), cmp.Compare(a.name, b.name))
	})
	for _, c := range found {
		contenders = append(contenders, c.name)
	}
	return contenders, others, ended
}

// neighbors is the part of a listing that matters to one contender, determined in one pass over thousands of
// names.
type neighbors struct {
	present     bool     // the contender's znode exists
	predecessor string   // the last of the earlier contenders for which the contender waits, or empty
	before      string   // the last but one of these contenders, or empty
	blocking    int      // the number of earlier contenders for which the contender waits
	twins       []string // other children with the same sequence number as the contender
	orphans     []string // further znodes of this contender, left by creates without a reply
	ended       bool     // the tombstone exists
}

// neighborsIn evaluates a listing.
func (c *Contender) neighborsIn(children []string) neighbors {
	number, prefixes := sequenceOfAny, c.orphanPrefixes()
	if c.cfg.Admit != nil {
		number = Sequence
	}
	var n neighbors
	own, _ := number(c.znode.name)
	var last, lastButOne int32 // how far these contenders are from c in the queue, as negative numbers
	for _, name := range children {
		if name == c.znode.name {
			n.present = true
			continue
		}
		sequence, ok := number(name)
		switch {
		case HasAnyPrefix(name, prefixes):
			n.orphans = append(n.orphans, name)
			continue
		case !ok:
			n.ended = n.ended || c.cfg.Tombstone != "" && name == c.cfg.Tombstone
			continue
		case c.ignores(name):
			continue
		}
		distance := sequence - own
		if distance >= 0 {
			if distance == 0 {
				n.twins = append(n.twins, name)
			}
			continue
		}
		if c.cfg.Blocks != nil && !c.cfg.Blocks(name) {
			continue
		}
		n.blocking++
		switch {
		case n.blocking == 1 || distance > last:
			n.before, lastButOne = n.predecessor, last
			n.predecessor, last = name, distance
		case n.before == "" || distance > lastButOne:
			n.before, lastButOne = name, distance
		}
	}
	return n
}

// orphanPrefixes returns the prefixes of the names of the contender's znodes if it may have orphaned ones, unless all
// contenders have this prefix.
func (c *Contender) orphanPrefixes() []string {
	if len(c.creates.prefixes) > 1 && c.cfg.Naming.HasGUID() {
		return c.creates.prefixes
	}
	return nil
}

func (c *Contender) ignores(name string) bool {
	_, found := slices.BinarySearch(c.queue.ignored, name)
	return found
}

// unverified returns the predecessor and the children before it, the last one first, up to the first one whose
// znode does not have to be inspected.
func (c *Contender) unverified(predecessor string, children []string) []string {
	names, prefixes := []string{predecessor}, c.orphanPrefixes()
	ordered, _, _ := Order(children, c.cfg.Tombstone)
	for _, name := range slices.Backward(ordered[:max(0, slices.Index(ordered, c.znode.name))]) {
		switch {
		case name == predecessor, isTwin(name, c.znode.name), HasAnyPrefix(name, prefixes), c.ignores(name), c.cfg.Blocks != nil && !c.cfg.Blocks(name):
		case !c.mustInspect(name):
			return names
		default:
			names = append(names, name)
		}
	}
	return names
}

// isTwin reports whether two names have the same sequence number.
func isTwin(a, b string) bool {
	x, _ := sequenceOfAny(a)
	y, _ := sequenceOfAny(b)
	return x == y
}

// HasAnyPrefix reports whether name begins with one of prefixes.
func HasAnyPrefix(name string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
