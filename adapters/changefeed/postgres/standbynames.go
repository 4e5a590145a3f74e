package postgres

import (
	"errors"
	"strconv"
	"strings"
)

var errStandbyNames = errors.New("expected names, FIRST n (names) or ANY n (names)")

// parseStandbyNames reads a value of synchronous_standby_names that is not empty: for how
// many standbys a commit waits, and the names of those it can wait for, in lower case. An
// asterisk matches any name.
func parseStandbyNames(setting string) (wait int, names []string, err error) {
	tokens, err := standbyTokens(setting)
	if err != nil {
		return 0, nil, err
	}
	if len(tokens) > 0 && !tokens[0].quoted && (tokens[0].is("first") || tokens[0].is("any")) &&
		len(tokens) > 2 && tokens[2].is("(") {
		tokens = tokens[1:]
	}
	wait = 1
	if len(tokens) > 1 && tokens[1].is("(") {
		if wait, err = strconv.Atoi(tokens[0].text); err != nil || !tokens[len(tokens)-1].is(")") {
			return 0, nil, errStandbyNames
		}
		tokens = tokens[2 : len(tokens)-1]
	}
	for i, t := range tokens {
		separator := t.is(",") || t.is("(") || t.is(")")
		if i%2 == 0 == separator || separator && !t.is(",") {
			return 0, nil, errStandbyNames
		}
		if !separator {
			names = append(names, strings.ToLower(t.text))
		}
	}
	if len(tokens)%2 == 0 {
		return 0, nil, errStandbyNames
	}
	return wait, names, nil
}

// standbyToken is a name, a number, or one of "(),".
type standbyToken struct {
	text   string
	quoted bool
}

func (t standbyToken) is(word string) bool { return !t.quoted && strings.EqualFold(t.text, word) }

func standbyTokens(setting string) (tokens []standbyToken, err error) {
	for rest := strings.TrimSpace(setting); rest != ""; rest = strings.TrimSpace(rest) {
		switch rest[0] {
		case '(', ')', ',':
			tokens, rest = append(tokens, standbyToken{text: rest[:1]}), rest[1:]
		case '"':
			var name strings.Builder
			for rest = rest[1:]; ; {
				before, after, ok := strings.Cut(rest, `"`)
				if !ok {
					return nil, errStandbyNames
				}
				name.WriteString(before)
				if rest = after; !strings.HasPrefix(rest, `"`) {
					break
				}
				name.WriteByte('"') // doubled
				rest = rest[1:]
			}
			tokens = append(tokens, standbyToken{name.String(), true})
		default:
			end := strings.IndexAny(rest, "(),\" \t\r\n")
			if end < 0 {
				end = len(rest)
			}
			tokens, rest = append(tokens, standbyToken{text: rest[:end]}), rest[end:]
		}
	}
	return tokens, nil
}
