package top

// Key is a key that the user has pressed.
type Key int

// The keys that have a function.
const (
	KeyNone Key = iota
	KeyUp
	KeyDown
	KeyHome
	KeyEnd
	KeySwitch // switches between the elections and the candidates of the selected election
	KeyBack
	KeyErase
	KeyFilter
	KeySort
	KeyResign
	KeyHelp
	KeyQuit
)

// characterKeys maps typed characters to keys.
var characterKeys = map[string]Key{
	"k": KeyUp, "j": KeyDown, "/": KeyFilter, "s": KeySort, "r": KeyResign, "?": KeyHelp, "h": KeyHelp, "q": KeyQuit,
}

// handleText handles a typed character, which is a part of the filter, an answer to a question, or a key.
func (s State) handleText(text string) State {
	switch {
	case s.filtering:
		s.filter += text
		return s
	case s.unconfirmed != nil:
		if text == "y" || text == "Y" {
			s.confirmed = s.unconfirmed
			s = s.recordChange(change{s.now, s.confirmed.Election, s.confirmed.Candidate.Name + " was requested to hand over", Plain})
		}
		s.unconfirmed = nil
		return s
	}
	return s.handleKey(characterKeys[text])
}

func (s State) handleKey(k Key) State {
	switch {
	case s.help:
		s.help = false
		s.quit = k == KeyQuit
		return s
	case s.filtering:
		switch k {
		case KeySwitch:
			s.filtering = false
		case KeyBack:
			s.filtering, s.filter = false, ""
		case KeyErase:
			runes := []rune(s.filter)
			s.filter = string(runes[:max(0, len(runes)-1)])
		case KeyQuit: // Ctrl-C
			s.quit = true
		}
		return s
	case s.unconfirmed != nil:
		s.unconfirmed = nil
		s.quit = k == KeyQuit
		return s
	}
	position, last := &s.selectedRow, len(s.visibleElections())-1
	if s.inQueue {
		position, last = &s.cursor, len(s.selectedQueue())-1
	}
	switch k {
	case KeyUp:
		*position--
	case KeyDown:
		*position++
	case KeyHome:
		*position = 0
	case KeyEnd:
		*position = last
	case KeySwitch:
		s.inQueue = !s.inQueue
		if s.inQueue {
			s.cursor = 0
		}
	case KeyBack:
		if !s.inQueue {
			s.filter = ""
		}
		s.inQueue = false
	case KeyFilter:
		s.filtering, s.inQueue = true, false
	case KeySort:
		s.order = (s.order + 1) % orderCount
	case KeyResign:
		if queue := s.selectedQueue(); len(queue) > 0 {
			s.unconfirmed = &Request{s.selected, queue[0]}
			if s.inQueue {
				s.unconfirmed.Candidate = queue[s.cursor]
			}
		}
	case KeyHelp:
		s.help = true
	case KeyQuit:
		s.quit = true
	}
	if !s.inQueue && (k == KeyUp || k == KeyDown || k == KeyHome || k == KeyEnd) {
		s.selected = "" // clampSelection then selects the election in the row
	}
	return s
}
