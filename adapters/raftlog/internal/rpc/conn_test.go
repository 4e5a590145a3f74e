package rpc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Cancellations do not wait behind updates, which can be large.
func TestUrgentMessagesAreWrittenFirst(t *testing.T) {
	o := newOutbox()
	first, second, cancel := &outgoing{frame: []byte{1}}, &outgoing{frame: []byte{2}}, &outgoing{frame: []byte{3}}
	o.add(first)
	o.add(second)
	o.addUrgent(cancel)
	require.Equal(t, []*outgoing{cancel, first, second}, o.take(nil))
	require.Empty(t, o.take(nil))
	require.True(t, o.isTaken(second))
}
