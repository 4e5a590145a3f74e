package postgres

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// unsafeStandbys returns how to change setting, the value of synchronous_standby_names, and why, if a standby can lack
// acknowledged writes. It returns "" if there is no standby, or if each commit waits for all of them. It is not
// enough that standbys are synchronous: with ANY, and with FIRST and more names than required, a commit waits for
// some of them, but any of them can be promoted. standbys is the number of standbys and replication slots; behind is how
// many connected standbys setting does not name, and hidden is of how many the user may not see that.
func unsafeStandbys(setting string, standbys, behind, hidden int) string {
	const all = "name each standby in synchronous_standby_names, once, and wait for all of them, as in FIRST 2 (a, b)"
	if strings.TrimSpace(setting) == "" {
		if standbys == 0 {
			return ""
		}
		return fmt.Sprintf("commits wait for none of %d standbys or replication slots; %s", standbys, all)
	}
	wait, names, err := parseStandbyNames(setting)
	distinct := map[string]bool{}
	for _, name := range names {
		distinct[name] = true
	}
	switch {
	case err != nil:
		return fmt.Sprintf("the setting is not understood (%v); %s", err, all)
	case distinct["*"]:
		return "* matches any standby; " + all
	case wait < len(distinct):
		return fmt.Sprintf("a commit waits for %d of %d standbys; %s", wait, len(distinct), all)
	case standbys > wait:
		return fmt.Sprintf("a commit waits for %d standbys, and there are %d standbys or replication slots; %s", wait, standbys, all)
	case behind > 0:
		return fmt.Sprintf("%d of the connected standbys are not named; %s", behind, all)
	case hidden > 0:
		return fmt.Sprintf("this user cannot see whether %d of the connected standbys are named; grant it the role pg_read_all_stats", hidden)
	}
	return ""
}

var errStandbyNames = errors.New("expected names, FIRST n (names) or ANY n (names)")

// parseStandbyNames parses a value of synchronous_standby_names that is not empty. It returns the
// number of standbys for which a commit waits, and the names in lower case. An asterisk matches
// any name.
func parseStandbyNames(setting string) (wait int, names []string, err error) {
	tokens, err := splitStandbyNames(setting)
	if err != nil {
		return 0, nil, err
	}
	if len(tokens) > 0 && !tokens[0].quoted && (tokens[0].isWord("first") || tokens[0].isWord("any")) &&
		len(tokens) > 2 && tokens[2].isWord("(") {
		tokens = tokens[1:]
	}
	wait = 1
	if len(tokens) > 1 && tokens[1].isWord("(") {
		if wait, err = strconv.Atoi(tokens[0].text); err != nil || wait < 1 || !tokens[len(tokens)-1].isWord(")") {
			return 0, nil, errStandbyNames
		}
		tokens = tokens[2 : len(tokens)-1]
	}
	for i, t := range tokens {
		separator := t.isWord(",") || t.isWord("(") || t.isWord(")")
		if i%2 == 0 == separator || separator && !t.isWord(",") {
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

func (t standbyToken) isWord(word string) bool { return !t.quoted && strings.EqualFold(t.text, word) }

func splitStandbyNames(setting string) (tokens []standbyToken, err error) {
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
				name.WriteByte('"') // a doubled quote is one quote of the name
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
