package limit

// SendNewest sends v on c, which must have capacity one. If c contains an earlier value, SendNewest
// discards that value instead of blocking, because receivers need only the newest one. Only one
// goroutine at a time may send on c.
func SendNewest[T any](c chan T, v T) {
	select {
	case <-c:
	default:
	}
	c <- v
}

// Changes detects which values of a sequence differ from the value before them. The zero
// Changes is an empty sequence.
type Changes[T comparable] struct {
	last  T
	known bool
}

// Add appends v to the sequence, and reports whether v is the first value or differs from the value before.
func (c *Changes[T]) Add(v T) (changed bool) {
	changed = !c.known || v != c.last
	c.last, c.known = v, true
	return changed
}
