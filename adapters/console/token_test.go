package console

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParseCommand_ReturnsDifferentTokens checks that two candidates that receive the command LEADER at the same time
// get different tokens, and that the command reserves no token for a candidate that is the leader already.
func TestParseCommand_ReturnsDifferentTokens(t *testing.T) {
	c := New(nil, nil)
	parse := func(line string, reserve bool) int64 {
		_, token := c.parseCommand(line, reserve)
		return token
	}
	one, two := parse("LEADER", true), parse("LEADER", true)
	require.Greater(t, two, one)
	next := two + 1e12 // this token is in the future, so that the clock does not determine the next one
	require.Equal(t, next, parse("LEADER "+fmt.Sprint(next), true))
	require.Zero(t, parse("LEADER "+fmt.Sprint(next), true))
	require.Equal(t, next+1, parse("LEADER", false))
	require.Equal(t, next+1, parse("LEADER", true))
}
