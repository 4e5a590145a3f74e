package transport

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMailbox_DeliversEachIDOnce(t *testing.T) {
	m := newMailbox()
	for range 3 {
		m.addID("a")
		m.addID("b")
	}
	id, ok := m.takeID()
	require.True(t, ok)
	require.Equal(t, "a", id)
	m.addID("a") // the previous a is being delivered, so this one is delivered again
	for _, want := range []string{"b", "a"} {
		id, _ = m.takeID()
		require.Equal(t, want, id)
	}
	_, ok = m.takeID()
	require.False(t, ok)
	for i := range mailboxSize + 5 {
		m.addID(string(numberedFrame(i)))
	}
	id, _ = m.takeID()
	require.Equal(t, string(numberedFrame(5)), id, "the newest IDs were removed")
	require.Len(t, m.known, mailboxSize-1)
}
