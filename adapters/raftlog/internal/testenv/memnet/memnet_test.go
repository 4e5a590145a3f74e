package memnet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inBubble gives a test a network with one connection, of a to b, in fake time.
func inBubble(t *testing.T, f func(t *testing.T, n *Network, a, b net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		l, err := n.Listen("b")
		require.NoError(t, err)
		a, err := n.Dial(t.Context(), "a", "b")
		require.NoError(t, err)
		b, err := l.Accept()
		require.NoError(t, err)
		f(t, n, a, b)
		a.Close()
		b.Close()
		require.NoError(t, l.Close())
		require.Empty(t, n.conns)
	})
}

// reading reads n bytes in another goroutine.
func reading(c net.Conn, n int) <-chan string {
	result := make(chan string, 1)
	go func() {
		b := make([]byte, n)
		m, err := io.ReadFull(c, b)
		s := string(b[:m])
		if err != nil {
			s += " " + err.Error()
		}
		result <- s
	}()
	return result
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()
	n, err := c.Write([]byte(s))
	require.NoError(t, err)
	require.Equal(t, len(s), n)
}

func TestBothWays(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Network, a, b net.Conn) {
		write(t, a, "to b")
		write(t, b, "to a")
		require.Equal(t, "to b", <-reading(b, 4))
		require.Equal(t, "to a", <-reading(a, 4))
		require.Equal(t, "a", b.RemoteAddr().String())
		require.Equal(t, "b", a.RemoteAddr().String())
		require.Equal(t, "mem", a.LocalAddr().Network())
	})
}

func TestCutIsOneWay(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Network, a, b net.Conn) {
		n.Cut("a", "b")
		write(t, a, "wait")
		write(t, b, "come")
		require.Equal(t, "come", <-reading(a, 4))
		got := reading(b, 4)
		time.Sleep(time.Hour)
		require.Empty(t, got)
		n.Heal("a", "b")
		require.Equal(t, "wait", <-got)
	})
}

func TestFullBlocksUntilHealed(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Network, a, b net.Conn) {
		n.CutBoth("a", "b")
		write(t, a, string(make([]byte, capacity)))
		wrote := make(chan error, 1)
		go func() {
			_, err := a.Write([]byte("more"))
			wrote <- err
		}()
		got := reading(b, capacity+4)
		synctest.Wait()
		require.Empty(t, wrote)
		n.HealBoth("a", "b")
		require.NoError(t, <-wrote)
		require.Equal(t, "more", (<-got)[capacity:])
	})
}

func TestClosedWhileCut(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Network, a, b net.Conn) {
		n.CutBoth("a", "b")
		write(t, a, "last")
		require.NoError(t, a.Close())
		require.ErrorIs(t, a.Close(), net.ErrClosed)
		got := reading(b, 5)
		write(t, b, "b does not know yet")
		synctest.Wait()
		require.Empty(t, got)
		n.HealBoth("a", "b")
		require.Equal(t, "last unexpected EOF", <-got)
		_, err := b.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)
		_, err = b.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
	})
}

func TestDelay(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Network, a, b net.Conn) {
		began := time.Now()
		n.Delay("a", "b", time.Second)
		write(t, a, "late")
		n.Delay("a", "b", 0)
		write(t, a, "not before")
		require.Equal(t, "late", <-reading(b, 4))
		require.Equal(t, time.Second, time.Since(began))
		require.Equal(t, "not before", <-reading(b, 10))
		require.Equal(t, time.Second, time.Since(began))
		write(t, b, "back")
		require.Equal(t, "back", <-reading(a, 4))
		require.Equal(t, time.Second, time.Since(began))

		n.Delay("b", "a", time.Second)
		write(t, b, "end")
		b.Close()
		require.Equal(t, "end unexpected EOF", <-reading(a, 4))
		require.Equal(t, 2*time.Second, time.Since(began))
	})
}

func TestReset(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Network, a, b net.Conn) {
		n.CutBoth("a", "b")
		write(t, a, "lost")
		got := reading(b, 4)
		synctest.Wait()
		n.Reset("b", "a")
		require.Contains(t, <-got, "reset")
		_, err := a.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		n.HealBoth("a", "b")
		_, err = a.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
}

func TestDeadlines(t *testing.T) {
	inBubble(t, func(t *testing.T, n *Network, a, b net.Conn) {
		began := time.Now()
		require.NoError(t, a.SetDeadline(began.Add(time.Second)))
		_, err := a.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		var timeout net.Error
		require.True(t, errors.As(err, &timeout) && timeout.Timeout())
		m, err := a.Write(make([]byte, 2*capacity))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Zero(t, m)
		require.Equal(t, time.Second, time.Since(began))
		require.NoError(t, a.SetDeadline(time.Time{}))
		got := reading(a, 1)
		synctest.Wait()
		require.NoError(t, a.SetReadDeadline(time.Unix(1, 0)))
		require.Contains(t, <-got, "timeout")
	})
}

func TestDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		_, err := n.Dial(t.Context(), "a", "b")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		l, err := n.Listen("b")
		require.NoError(t, err)
		_, err = n.Listen("b")
		require.ErrorIs(t, err, syscall.EADDRINUSE)

		n.Cut("b", "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = n.Dial(ctx, "a", "b")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		go func() {
			time.Sleep(time.Minute)
			n.Heal("b", "a")
		}()
		n.Delay("b", "a", time.Second)
		began := time.Now()
		c, err := n.Dial(t.Context(), "a", "b")
		require.NoError(t, err)
		require.Equal(t, time.Minute+time.Second, time.Since(began))

		require.NoError(t, l.Close()) // nobody has accepted it
		n.Delay("b", "a", 0)
		_, err = c.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		c.Close()
		_, err = l.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
		require.ErrorIs(t, l.Close(), net.ErrClosed)
		require.Empty(t, n.conns)
		_, err = n.Listen("b")
		require.NoError(t, err)
	})
}

// TestManyBytes is of real time: with the race detector, and by several goroutines.
func TestManyBytes(t *testing.T) {
	n := New()
	l, err := n.Listen("b")
	require.NoError(t, err)
	defer l.Close()
	a, err := n.Dial(t.Context(), "a", "b")
	require.NoError(t, err)
	b, err := l.Accept()
	require.NoError(t, err)
	data := bytes.Repeat([]byte("0123456789"), 1<<17)
	go func() {
		a.Write(data)
		a.Close()
	}()
	got, err := io.ReadAll(b)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
	b.Close()
}
