package top

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

// secondsAfterStart returns the time that many seconds after the variable start.
func secondsAfterStart(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// newCandidate returns a candidate with the number n. The candidate has joined the given time before the variable
// start.
func newCandidate(name string, n int, before time.Duration) Candidate {
	return Candidate{
		Name: name, ID: fmt.Sprintf("/jobs/report/_c_0f1e2d3c-4b5a-8e1e-9786-a5b4c3d2e1%02x-latch-%010d", n, n),
		Session: fmt.Sprintf("0x10000abcdef%04x", n), Token: 4294967000 + int64(n), Joined: start.Add(-before),
	}
}

// newQueue returns a queue of n candidates.
func newQueue(n int) (queue []Candidate) {
	for i := range n {
		queue = append(queue, newCandidate(fmt.Sprintf("web-%d", i), i, time.Duration(n-i)*time.Hour))
	}
	return queue
}

var (
	one  = newCandidate("web-1", 1, 26*time.Hour)
	two  = newCandidate("web-2.rack-7.example.org-4711-abcdefgh", 2, 61*time.Minute)
	four = newCandidate("web-4", 4, 59*time.Second)
)

// TestUpdate_LeavesOldStateUnchanged checks that Update returns a new State and does not change its receiver.
func TestUpdate_LeavesOldStateUnchanged(t *testing.T) {
	before := New("", start, "/a")
	view := before.View()
	before.Update(Listed{secondsAfterStart(1), "/a", []Candidate{one}}).Update(KeySwitch).Update(Found{Elections: []string{"/b"}})
	require.Equal(t, view, before.View())
}

// TestTakeRequest_ReturnsOnlyConfirmedRequest checks that TakeRequest returns a request to resign only after the user
// has confirmed it, and that the request names the candidate for which the user was asked.
func TestTakeRequest_ReturnsOnlyConfirmedRequest(t *testing.T) {
	s := New("", start, "/a").Update(KeyResign)
	require.Nil(t, s.unconfirmed, "there is no candidate")
	s = s.Update(Listed{secondsAfterStart(1), "/a", []Candidate{one, two}}).Update(Typed{"r"})
	_, request := s.TakeRequest()
	require.Nil(t, request, "the user has not confirmed the request")
	for _, no := range []Message{Typed{"n"}, KeyBack, KeyDown, Typed{"q"}} {
		_, request = s.Update(no).TakeRequest()
		require.Nil(t, request)
		require.False(t, s.Update(no).Quit())
	}
	s, request = s.Update(Listed{secondsAfterStart(2), "/a", []Candidate{two}}).Update(Typed{"y"}).TakeRequest()
	require.Equal(t, &Request{"/a", one}, request)
	_, request = s.TakeRequest()
	require.Nil(t, request)
}

// TestUpdate_SelectionFollowsElection checks that the selection stays on its election if the sort order moves the
// row, and moves to another election if the filter hides the row.
func TestUpdate_SelectionFollowsElection(t *testing.T) {
	s := New("", start, "/b", "/a", "/c").Update(KeyDown)
	require.Equal(t, "/a", s.selected)
	s = s.Update(KeySort)
	require.Equal(t, "/a", s.selected)
	require.Equal(t, 0, s.selectedRow)
	s = s.Update(KeyFilter).Update(Typed{"c"})
	require.Equal(t, "/c", s.selected)
}

// TestQuit_ReportsWhetherUserHasQuit checks that Quit reports true after the key that quits, also on the help screen,
// and that all keys are harmless while no elections are shown.
func TestQuit_ReportsWhetherUserHasQuit(t *testing.T) {
	s := New("", start, "/a")
	require.False(t, s.Update(KeyNone).Quit())
	require.True(t, s.Update(KeyQuit).Quit())
	require.True(t, s.Update(KeyHelp).Update(KeyQuit).Quit())
	for _, k := range []Key{KeyUp, KeyDown, KeyHome, KeyEnd, KeySwitch} { // the keys must work without an election
		s = New("", start).Update(KeySwitch).Update(k)
		require.NotEmpty(t, s.View())
	}
}
