package rpc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOutbox_UrgentMessagesAreFirst checks that a cancellation is written before updates, which can be large.
func TestOutbox_UrgentMessagesAreFirst(t *testing.T) {
	o := newOutbox()
	first, second, cancel := &outgoing{frame: []byte{1}}, &outgoing{frame: []byte{2}}, &outgoing{frame: []byte{3}}
	o.addMessage(first)
	o.addMessage(second)
	o.addUrgent(cancel)
	require.Equal(t, []*outgoing{cancel, first, second}, o.nextBatch(nil))
	require.Empty(t, o.nextBatch(nil))
	require.True(t, o.isTaken(second))
}
