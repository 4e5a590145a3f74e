package queue

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/zk/connection"
	"github.com/go-leaderelection/leaderelection/internal/zk/recipe"
)

// entry contains what the name of an item says about the item: its priority, due time and sequence number.
type entry struct {
	name string
	// priority is the priority of the item; the lowest number comes first. It is noPriority if the name
	// contains no priority.
	priority int64
	// due is the due time in milliseconds since 1970, or 0 if the item is not delayed.
	due      int64
	sequence int32
}

// noPriority is the priority of items without a priority in their names. Such items precede all others, as in
// Curator, which compares the names as strings.
const noPriority = math.MinInt64

// compareEntries compares two items by priority, then by due time, then by sequence number.
// Sequence numbers are compared by serial number arithmetic (RFC 1982).
func compareEntries(a, b entry) int {
	switch {
	case a.priority != b.priority:
		return cmp.Compare(a.priority, b.priority)
	case a.due != b.due:
		return cmp.Compare(a.due, b.due)
	case a.sequence != b.sequence:
		if a.sequence-b.sequence < 0 {
			return -1
		}
		return 1
	}
	return strings.Compare(a.name, b.name)
}

const (
	curatorPrefix = "queue-"
	kazooPrefix   = "entry-"
	digits        = 10 // the number of digits of a sequence number
)

// parseName parses the name of an item. ok is false if name is not the name of an item in this layout.
func parseName(layout recipe.Layout, name string) (e entry, ok bool) {
	e.name, e.priority = name, noPriority
	prefix := curatorPrefix
	if layout == recipe.Kazoo {
		prefix = kazooPrefix
	}
	head, found := strings.CutPrefix(name, prefix)
	if !found {
		return e, false
	}
	separator := "" // the separator between the head and the sequence number
	if layout == recipe.Kazoo {
		separator = "-"
	}
	head, e.sequence, ok = cutSequence(head, separator)
	if !ok {
		return e, false
	}
	if layout == recipe.Kazoo {
		// The name is in kazoo's layout, for example entry-100-0000000042.
		n, err := strconv.ParseUint(head, 10, 16)
		e.priority = int64(n)
		return e, err == nil && len(head) == 3
	}
	switch {
	case head == "":
		return e, true // the name has no priority and no time, for example queue-0000000042
	case len(head) == 9 && (head[0] == '0' || head[0] == '1'):
		// The name has a priority, for example queue-1000000050000000042. The sign is encoded such that the
		// names sort like the numbers.
		n, err := strconv.ParseUint(head[1:], 16, 32)
		e.priority = int64(int32(n))
		return e, err == nil
	case len(head) > 1 && head[0] == '|' && head[len(head)-1] == '|':
		// The name has a time, for example queue-|19A3F5C2E80|0000000042. If the time is not a number, the item
		// is not delayed, as in Curator.
		e.due, _ = strconv.ParseInt(head[1:len(head)-1], 16, 64)
		return e, true
	}
	return e, false
}

// cutSequence removes the sequence number, and the separator before it, from the end of a name. The
// number has ten characters, or eleven with a minus sign: after 2147483647, the counter of old
// servers continues with -2147483648.
func cutSequence(s, separator string) (head string, sequence int32, ok bool) {
	at := len(s) - digits
	if at < 0 {
		return "", 0, false
	}
	if strings.HasSuffix(s[:at], separator+"-") {
		at--
	}
	n, err := strconv.ParseInt(s[at:], 10, 32)
	head, found := strings.CutSuffix(s[:at], separator)
	return head, int32(n), found && err == nil
}

// prefixOf returns the name of an item without its sequence number.
func prefixOf(e entry) string { return strings.TrimSuffix(e.name, fmt.Sprintf("%010d", e.sequence)) }

// position is the priority or the time of a new item.
type position struct {
	priority    int
	hasPriority bool
	due         int64 // the time before which the item is not delivered, in milliseconds since 1970
}

// prefix returns the name of a new item up to its sequence number.
func (p position) prefix(layout recipe.Layout) (string, error) {
	if layout == recipe.Kazoo {
		n := kazooPriority
		if p.hasPriority {
			n = p.priority
		}
		switch {
		case n < 0 || n > 999:
			return "", fmt.Errorf("%w: WithPriority(%d): kazoo's layout supports 0 to 999", connection.ErrInvalid, n)
		case p.due != 0:
			return "", fmt.Errorf("%w: WithTime: kazoo's layout does not support delayed items", connection.ErrInvalid)
		}
		return fmt.Sprintf("%s%03d-", kazooPrefix, n), nil
	}
	switch {
	case p.hasPriority && p.due != 0:
		return "", fmt.Errorf("%w: WithPriority and WithTime: an item cannot have both a priority and a time", connection.ErrInvalid)
	case int(int32(p.priority)) != p.priority:
		return "", fmt.Errorf("%w: WithPriority(%d): does not fit into 32 bits", connection.ErrInvalid, p.priority)
	case p.due != 0:
		return fmt.Sprintf("%s|%08X|", curatorPrefix, p.due), nil
	case p.hasPriority:
		sign := "1"
		if p.priority < 0 {
			sign = "0"
		}
		return fmt.Sprintf("%s%s%08X", curatorPrefix, sign, uint32(int32(p.priority))), nil
	}
	return curatorPrefix, nil
}

// kazooPriority is the priority that kazoo assigns by default.
const kazooPriority = 100
