// Package latest sends on channels whose receivers need only the newest value.
package latest

// Send sends v on c, which has capacity one, and discards a value that was not received. It does
// not block. Only one goroutine at a time may send on c.
func Send[T any](c chan T, v T) {
	select {
	case <-c:
	default:
	}
	c <- v
}
