package limit

// SendNewest sends v on c, which has capacity one, and discards a value that was not received. It does
// not block: receivers need only the newest value. Only one goroutine at a time may send on c.
func SendNewest[T any](c chan T, v T) {
	select {
	case <-c:
	default:
	}
	c <- v
}

// Changes reports which values differ from the value before. The zero Changes has no value yet.
type Changes[T comparable] struct {
	last  T
	known bool
}

// Add adds a value, and reports whether it is the first one or differs from the last one.
func (c *Changes[T]) Add(v T) (changed bool) {
	changed = !c.known || v != c.last
	c.last, c.known = v, true
	return changed
}
