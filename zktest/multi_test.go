package zktest_test

import (
	"io"
	"slices"
	"testing"

	"github.com/go-leaderelection/leaderelection/zktest"
	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

// TestMultiReadTooLarge: a small packet that asks for more than can be sent closes
// its connection.
func TestMultiReadTooLarge(t *testing.T) {
	s := zktest.Start(t)
	c := newRawClient(t, s, false)
	c.send(t, create("/large", slices.Repeat([]byte("x"), 1_000_000)))
	if err := c.reply(); err != nil {
		t.Fatal(err)
	}
	read := func(n int) func(*wire.Encoder) {
		return func(e *wire.Encoder) {
			e.Int(int32(wire.MultiRead))
			for range n {
				e.Int(int32(wire.GetData))
				e.Bool(false)
				e.Int(-1)
				e.String("/large")
				e.Bool(false)
			}
			e.Int(-1)
			e.Bool(true)
			e.Int(-1)
		}
	}
	other := newRawClient(t, s, false)
	other.send(t, read(10_000))
	if err := other.reply(); err != io.EOF {
		t.Errorf("10 GB: %v", err)
	}
	c.send(t, read(3))
	if err := c.reply(); err != nil {
		t.Errorf("3 MB: %v", err)
	}
}
