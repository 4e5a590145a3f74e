package transport

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMailbox_DeliversEachIDOnce(t *testing.T) {
	m := newMailbox()
	for range 3 {
		m.put("a")
		m.put("b")
	}
	id, ok := m.next()
	require.True(t, ok)
	require.Equal(t, "a", id)
	m.put("a") // a is being delivered, so it is delivered again
	for _, want := range []string{"b", "a"} {
		id, _ = m.next()
		require.Equal(t, want, id)
	}
	_, ok = m.next()
	require.False(t, ok)
	for i := range mailboxSize + 5 {
		m.put(string(numberedFrame(i)))
	}
	id, _ = m.next()
	require.Equal(t, string(numberedFrame(5)), id, "the newest IDs were removed")
	require.Len(t, m.known, mailboxSize-1)
}
