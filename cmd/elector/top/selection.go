package top

import (
	"cmp"
	"slices"
	"strings"
)

// order is the order in which the screen lists elections.
type order int

const (
	asGiven order = iota
	byName
	byState   // elections without a leader, or whose backend does not answer, first
	byChange  // the election whose leader changed last first
	byWaiting // the election with the most candidates first
	orderCount
)

func (o order) String() string {
	return [...]string{"as given", "by name", "by state", "by last change", "by candidates"}[o]
}

// visibleElections returns the elections that match the filter, in the selected order.
func (s State) visibleElections() []election {
	visible := slices.Clone(s.elections)
	if s.filter != "" {
		visible = slices.DeleteFunc(visible, func(e election) bool {
			return !strings.Contains(strings.ToLower(e.name+"\n"+e.leader().Name), strings.ToLower(s.filter))
		})
	}
	problemRank := func(e election) int {
		switch {
		case e.isLeaderless():
			return 0
		case e.err != nil:
			return 1
		case e.missing || e.updated.IsZero():
			return 2
		}
		return 3
	}
	slices.SortStableFunc(visible, func(a, b election) int {
		switch s.order {
		case byName:
			return strings.Compare(a.name, b.name)
		case byState:
			return cmp.Compare(problemRank(a), problemRank(b))
		case byChange:
			return b.leadsSince.Compare(a.leadsSince)
		case byWaiting:
			return cmp.Compare(len(b.queue), len(a.queue))
		}
		return 0
	})
	return visible
}

// clampSelection moves the selection and the cursor to a visible election and an existing candidate. An election
// remains selected if only its row changes.
func (s State) clampSelection() State {
	visible := s.visibleElections()
	if i := slices.IndexFunc(visible, func(e election) bool { return e.name == s.selected }); i >= 0 {
		s.selectedRow = i
	}
	s.selectedRow = max(0, min(s.selectedRow, len(visible)-1))
	s.selected = ""
	if len(visible) > 0 {
		s.selected = visible[s.selectedRow].name
	}
	s.cursor = max(0, min(s.cursor, len(s.selectedQueue())-1))
	return s
}

// selectedQueue returns the candidates of the selected election.
func (s State) selectedQueue() []Candidate {
	for _, e := range s.elections {
		if e.name == s.selected {
			return e.queue
		}
	}
	return nil
}
