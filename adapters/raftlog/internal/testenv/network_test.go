package testenv

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
)

// runInBubble calls test in fake time, with a network and both ends of a connection from address a to
// address b.
func runInBubble(t *testing.T, test func(t *testing.T, n *Network, a, b net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork()
		l, err := n.Listen("b")
		require.NoError(t, err)
		a, err := n.Dial(t.Context(), "a", "b")
		require.NoError(t, err)
		b, err := l.Accept()
		require.NoError(t, err)
		test(t, n, a, b)
		a.Close()
		b.Close()
		require.NoError(t, l.Close())
		require.Empty(t, n.conns)
	})
}

// startRead reads n bytes from c in another goroutine, which sends the bytes and the error as text.
func startRead(c net.Conn, n int) <-chan string {
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

func writeString(t *testing.T, c net.Conn, s string) {
	t.Helper()
	n, err := c.Write([]byte(s))
	require.NoError(t, err)
	require.Equal(t, len(s), n)
}

func TestConn_TransfersInBothDirections(t *testing.T) {
	runInBubble(t, func(t *testing.T, n *Network, a, b net.Conn) {
		writeString(t, a, "to b")
		writeString(t, b, "to a")
		require.Equal(t, "to b", <-startRead(b, 4))
		require.Equal(t, "to a", <-startRead(a, 4))
		require.Equal(t, "a", b.RemoteAddr().String())
		require.Equal(t, "b", a.RemoteAddr().String())
		require.Equal(t, "mem", a.LocalAddr().Network())
	})
}

func TestCut_AffectsOneDirection(t *testing.T) {
	runInBubble(t, func(t *testing.T, n *Network, a, b net.Conn) {
		n.Cut("a", "b")
		writeString(t, a, "wait")
		writeString(t, b, "come")
		require.Equal(t, "come", <-startRead(a, 4))
		got := startRead(b, 4)
		time.Sleep(time.Hour)
		require.Empty(t, got)
		n.Heal("a", "b")
		require.Equal(t, "wait", <-got)
	})
}

func TestConn_BlocksWritesUntilFullConnectionIsHealed(t *testing.T) {
	runInBubble(t, func(t *testing.T, n *Network, a, b net.Conn) {
		n.CutBoth("a", "b")
		writeString(t, a, string(make([]byte, capacity)))
		wrote := make(chan error, 1)
		go func() {
			_, err := a.Write([]byte("more"))
			wrote <- err
		}()
		got := startRead(b, capacity+4)
		synctest.Wait()
		require.Empty(t, wrote)
		n.HealBoth("a", "b")
		require.NoError(t, <-wrote)
		require.Equal(t, "more", (<-got)[capacity:])
	})
}

func TestConn_DeliversCloseAfterHeal(t *testing.T) {
	runInBubble(t, func(t *testing.T, n *Network, a, b net.Conn) {
		n.CutBoth("a", "b")
		writeString(t, a, "last")
		require.NoError(t, a.Close())
		require.ErrorIs(t, a.Close(), net.ErrClosed)
		got := startRead(b, 5)
		writeString(t, b, "before the close is received")
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

func TestDelay_KeepsOrderOfData(t *testing.T) {
	runInBubble(t, func(t *testing.T, n *Network, a, b net.Conn) {
		start := time.Now()
		n.Delay("a", "b", time.Second)
		writeString(t, a, "late")
		n.Delay("a", "b", 0)
		writeString(t, a, "not before")
		require.Equal(t, "late", <-startRead(b, 4))
		require.Equal(t, time.Second, time.Since(start))
		require.Equal(t, "not before", <-startRead(b, 10))
		require.Equal(t, time.Second, time.Since(start))
		writeString(t, b, "back")
		require.Equal(t, "back", <-startRead(a, 4))
		require.Equal(t, time.Second, time.Since(start))

		n.Delay("b", "a", time.Second)
		writeString(t, b, "end")
		b.Close()
		require.Equal(t, "end unexpected EOF", <-startRead(a, 4))
		require.Equal(t, 2*time.Second, time.Since(start))
	})
}

func TestReset_BreaksConnectionsEvenWhileCut(t *testing.T) {
	runInBubble(t, func(t *testing.T, n *Network, a, b net.Conn) {
		n.CutBoth("a", "b")
		writeString(t, a, "lost")
		got := startRead(b, 4)
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

// TestConn_EndsReadsAndWritesAtDeadline checks that a read or a write ends at its deadline, even if the deadline is
// set while the read or write is in progress.
func TestConn_EndsReadsAndWritesAtDeadline(t *testing.T) {
	runInBubble(t, func(t *testing.T, n *Network, a, b net.Conn) {
		start := time.Now()
		require.NoError(t, a.SetDeadline(start.Add(time.Second)))
		_, err := a.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		var timeout net.Error
		require.True(t, errors.As(err, &timeout) && timeout.Timeout())
		m, err := a.Write(make([]byte, 2*capacity))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Zero(t, m)
		require.Equal(t, time.Second, time.Since(start))
		require.NoError(t, a.SetDeadline(time.Time{}))
		got := startRead(a, 1)
		synctest.Wait()
		require.NoError(t, a.SetReadDeadline(time.Unix(1, 0)))
		require.Contains(t, <-got, "timeout")
	})
}

func TestDial_WaitsWhileCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork()
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
		start := time.Now()
		c, err := n.Dial(t.Context(), "a", "b")
		require.NoError(t, err)
		require.Equal(t, time.Minute+time.Second, time.Since(start))

		require.NoError(t, l.Close()) // the listener closes this connection, because it was not accepted
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

// TestConn_TransfersManyBytes checks that many bytes arrive unchanged between several goroutines. It
// uses real time, so that the race detector can find races.
func TestConn_TransfersManyBytes(t *testing.T) {
	n := NewNetwork()
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
