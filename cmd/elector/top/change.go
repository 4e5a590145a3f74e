package top

import (
	"fmt"
	"slices"
	"time"
)

// change is a change of an election in the list of recent changes.
type change struct {
	at       time.Time
	election string
	text     string
	style    Style
}

// maxChanges is the maximum number of recent changes that a State keeps.
const maxChanges = 200

// changesBetween returns the changes between two states of an election, the oldest first. The first state of an
// election is not a change.
func changesBetween(before, after election) (all []change) {
	add := func(style Style, format string, args ...any) {
		all = append(all, change{text: fmt.Sprintf(format, args...), style: style})
	}
	switch {
	case before.err == nil && after.err != nil:
		add(Warning, "no answer: %v", after.err)
		return all
	case before.updated.IsZero() || after.err != nil:
		return nil
	case before.err != nil:
		add(Plain, "answers again")
	}
	switch {
	case !before.missing && after.missing:
		add(Alarm, "the election was deleted")
		return all
	case before.missing && !after.missing:
		add(Plain, "the election was created")
	}
	contains := func(queue []Candidate, id string) bool {
		return slices.ContainsFunc(queue, func(c Candidate) bool { return c.ID == id })
	}
	for _, c := range before.queue {
		if !contains(after.queue, c.ID) {
			add(Plain, "%s left", c.Name)
		}
	}
	for _, c := range after.queue {
		if !contains(before.queue, c.ID) {
			add(Plain, "%s joined", c.Name)
		}
	}
	switch previous, current := before.leader(), after.leader(); {
	case previous.ID == current.ID:
	case current.ID == "":
		add(Alarm, "no leader")
	default:
		add(Leading, "%s leads, token %d", current.Name, current.Token)
	}
	return all
}
