package cmdline

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

const (
	// FlagConfig is the flag of the configuration file.
	FlagConfig = "config"

	// annotationVariable and annotationLine are the annotations of a flag that contain its source.
	annotationVariable = "variable"
	annotationLine     = "line"
)

// Settings describes the settings of a program. Each setting is a flag, whose name is the key in the configuration
// file and, in upper case after Prefix, the environment variable. The command line has precedence, then the
// environment, then the file, then the default.
//
// Settings uses the nodes of the YAML decoder, because koanf, viper, kong and ff lose the line numbers, which errors
// contain.
type Settings struct {
	Prefix string
	// Earlier contains the current names of flags, by the names that the flags had in earlier versions. Earlier
	// names, and the variables that correspond to them, are accepted as well.
	Earlier map[string]string
	// Variables maps names of flags to additional environment variables that set the flag, in the order of
	// precedence.
	Variables map[string][]string
}

// ListOfMappings is the value of a flag whose list may contain mappings in a configuration file.
type ListOfMappings interface {
	pflag.SliceValue
	// FromMapping converts a mapping in the file to the text that Append accepts.
	FromMapping(map[string]string) (string, error)
}

// Read sets the flags that the command line does not contain: first each flag in flags to its environment variable,
// and then each flag in keys, which may be the same set, to its value in the file that --config names. An empty
// variable counts as unset. Of two flags x and x-file, the one whose source has precedence is used. warning is not
// empty if all users can read the file and isCredential returns true for a value in it. Read can be repeated.
func (s Settings) Read(flags, keys *pflag.FlagSet, isCredential func(flag, value string) bool) (warning string, err error) {
	flags.VisitAll(func(f *pflag.Flag) { err = errors.Join(err, s.readVariables(flags, f)) })
	if name := flags.Lookup(FlagConfig).Value.String(); name != "" {
		fileWarning, fileErr := readFile(FlagConfig, name, keys, isCredential)
		warning, err = fileWarning, errors.Join(err, fileErr)
	}
	return warning, errors.Join(err, selectAlternatives(keys))
}

// ReadOnlyFile sets keys to the values in a file, as Read does, but reads no environment variables.
// name is the value of the given flag, with which errors about the whole file begin.
func ReadOnlyFile(flag, name string, keys *pflag.FlagSet, isCredential func(flag, value string) bool) (warning string, err error) {
	warning, err = readFile(flag, name, keys, isCredential)
	return warning, errors.Join(err, selectAlternatives(keys))
}

// readVariables sets a flag to the first of its environment variables that is not empty.
func (s Settings) readVariables(flags *pflag.FlagSet, f *pflag.Flag) error {
	for _, name := range s.VariablesOf(f.Name) {
		value := os.Getenv(name)
		if value == "" || f.Changed || !isSetting(f) {
			continue
		}
		_ = flags.SetAnnotation(f.Name, annotationVariable, []string{name})
		if err := flags.Set(f.Name, value); err != nil {
			return fmt.Errorf("%s: %w", name, ValueError(err))
		}
	}
	return nil
}

// isSetting reports whether an environment variable can set a flag.
func isSetting(f *pflag.Flag) bool { return f.Name != "help" && f.Name != "version" }

// VariablesOf returns the environment variables that set a flag, in the order of precedence.
func (s Settings) VariablesOf(flag string) []string {
	variable := func(name string) string { return s.Prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }
	all := append([]string{variable(flag)}, s.Variables[flag]...)
	for _, earlier := range slices.Sorted(maps.Keys(s.Earlier)) {
		if s.Earlier[earlier] == flag {
			all = append(all, variable(earlier))
		}
	}
	return all
}

// Normalize replaces an earlier name of a flag by the current name. It is a normalize function for
// [pflag.FlagSet.SetNormalizeFunc].
func (s Settings) Normalize(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(cmp.Or(s.Earlier[name], name))
}

// Source returns where the value of a flag comes from: "command line", the name of a variable, the line of a
// file, or "default".
func Source(f *pflag.Flag) string {
	switch {
	case len(f.Annotations[annotationVariable]) > 0:
		return f.Annotations[annotationVariable][0]
	case IsFromFile(f):
		return f.Annotations[annotationLine][0]
	case f.Changed:
		return "command line"
	}
	return "default"
}

// IsFromFile reports whether the value of a flag comes from the configuration file.
func IsFromFile(f *pflag.Flag) bool { return len(f.Annotations[annotationLine]) > 0 }

// selectAlternatives resets the flag x or the flag x-file if two different sources have set them: the flag whose
// source has less precedence.
func selectAlternatives(keys *pflag.FlagSet) (err error) {
	precedence := func(f *pflag.Flag) int {
		switch {
		case f.Value.String() == "" || !f.Changed:
			return 0
		case IsFromFile(f):
			return 1
		case len(f.Annotations[annotationVariable]) > 0:
			return 2
		}
		return 3
	}
	keys.VisitAll(func(f *pflag.Flag) {
		file := keys.Lookup(f.Name + "-file")
		if file == nil || precedence(f)*precedence(file) == 0 {
			return
		}
		reset := f
		switch direct := precedence(f); {
		case direct == precedence(file):
			err = errors.Join(err, fmt.Errorf("--%s (%s) and --%s (%s): set only one of them", file.Name, Source(file), f.Name, Source(f)))
			return
		case direct > precedence(file):
			reset = file
		}
		_ = reset.Value.Set("")
		reset.Changed, reset.Annotations = false, nil
	})
	return err
}

// readFile sets those flags of keys that no other source has set to the values in the file with the given name. flag
// is the flag that sets the name of the file. The returned error contains all errors in the file.
func readFile(flag, name string, keys *pflag.FlagSet, isCredential func(flag, value string) bool) (warning string, err error) {
	text, warning, err := ReadConfig(name)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", flag, err)
	}
	top, err := parseFile(name, text)
	if err != nil {
		return "", err
	}
	file, hasCredentials := configFile{name: name, keys: keys}, false
	for key, value := range file.keysAndValues(top) {
		f := keys.Lookup(key.Value)
		if f == nil || !isSetting(f) || f.Name == FlagConfig {
			file.addError(key, "unknown key %q: the nearest is %q", key.Value, nearestKey(key.Value, keys))
			continue
		}
		file.set(f, key, value)
		hasCredentials = hasCredentials || value.Value != "" && isCredential(f.Name, value.Value)
	}
	if !hasCredentials {
		warning = ""
	}
	return warning, errors.Join(file.errs...)
}

func nearestKey(unknown string, keys *pflag.FlagSet) string {
	var known []string
	keys.VisitAll(func(f *pflag.Flag) {
		if isSetting(f) && f.Name != FlagConfig {
			known = append(known, f.Name)
		}
	})
	key, _ := Nearest(unknown, known)
	return key
}

// parseFile returns the mapping of keys to values in a YAML document.
func parseFile(name string, text []byte) (*yaml.Node, error) {
	var document, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	err := decoder.Decode(&document)
	if err == nil {
		err = decoder.Decode(&second)
	}
	switch {
	case err == nil:
		return nil, fmt.Errorf("%s:%d: a second document: expected exactly one YAML document", name, second.Line)
	case !errors.Is(err, io.EOF):
		cause := strings.TrimPrefix(err.Error(), "yaml: ")
		if located, found := strings.CutPrefix(cause, "line "); found {
			return nil, fmt.Errorf("%s:%s: correct the YAML syntax", name, located)
		}
		return nil, fmt.Errorf("%s: %s: correct the YAML syntax", name, cause)
	case len(document.Content) == 0 || document.Content[0].Tag == "!!null":
		// Accept a file that is empty or contains only comments.
		return &yaml.Node{}, nil
	}
	top := document.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: not of the form key: value", name, top.Line)
	}
	return top, nil
}

// configFile is a configuration file, whose keys set flags.
type configFile struct {
	name string
	keys *pflag.FlagSet
	errs []error
}

// addError adds an error in the line of a node. The error contains no values, which may be credentials.
func (c *configFile) addError(at *yaml.Node, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s:%d: %w", c.name, at.Line, fmt.Errorf(format, args...)))
}

// keysAndValues returns the keys and values of a mapping. It rejects a key that is set twice.
func (c *configFile) keysAndValues(mapping *yaml.Node) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		lines := map[string]int{}
		for i := 0; i < len(mapping.Content); i += 2 {
			key, value := mapping.Content[i], mapping.Content[i+1]
			name := string(c.keys.GetNormalizeFunc()(c.keys, key.Value))
			if line, twice := lines[name]; twice {
				c.addError(key, "%q is set in line %d already: remove one of them", key.Value, line)
				continue
			}
			lines[name] = key.Line
			if value.Kind == yaml.AliasNode {
				value = value.Alias
			}
			if !yield(key, value) {
				return
			}
		}
	}
}

// set sets a flag to a value in the file, unless the command line or an environment variable has set the flag.
func (c *configFile) set(f *pflag.Flag, key, value *yaml.Node) {
	list, isList := f.Value.(pflag.SliceValue)
	given := f.Changed
	switch {
	case value.Tag == "!!null":
		c.addError(key, "%q has no value: set it, or remove the key", key.Value)
	case value.Kind == yaml.SequenceNode && isList && !given:
		c.setList(list, key, value)
		f.Changed = true
	case value.Kind == yaml.SequenceNode && isList: // ignore the list, because a source with precedence has set it
	case f.Value.Type() == "stringArray":
		c.addError(value, "%q is not a list: write each element on a line of its own, after a dash", key.Value)
	case value.Kind != yaml.ScalarNode && isList:
		c.addError(value, "%q is a mapping: use one value, or a list of values", key.Value)
	case value.Kind != yaml.ScalarNode:
		c.addError(value, "%q is a list or a mapping: use one value", key.Value)
	case !given:
		if err := c.keys.Set(f.Name, value.Value); err != nil {
			c.addError(value, "%q%w", key.Value, describeMismatch(err))
		}
	}
	if !given {
		_ = c.keys.SetAnnotation(f.Name, annotationLine, []string{fmt.Sprintf("%s:%d", c.name, key.Line)})
	}
}

// setList sets a flag whose value is a list to the elements of a list in the file.
func (c *configFile) setList(list pflag.SliceValue, key, value *yaml.Node) {
	_ = list.Replace(nil)
	mappings, acceptsMappings := list.(ListOfMappings)
	for _, element := range value.Content {
		if element.Kind == yaml.AliasNode {
			element = element.Alias
		}
		text, err := element.Value, error(nil)
		switch {
		case element.Kind == yaml.MappingNode && acceptsMappings:
			values := map[string]string{}
			for name, value := range c.keysAndValues(element) {
				values[name.Value] = value.Value
			}
			text, err = mappings.FromMapping(values)
		case element.Kind != yaml.ScalarNode || element.Tag == "!!null":
			err = errors.New("use one value")
		}
		if err == nil {
			err = list.Append(text)
		}
		if err != nil {
			c.addError(element, "an element of %q: %w", key.Value, err)
		}
	}
}

// ValueNode returns the value of a flag as YAML, to be written to a configuration file.
func ValueNode(f *pflag.Flag) *yaml.Node {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		sequence := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, element := range list.GetSlice() {
			node := &yaml.Node{}
			node.SetString(element)
			sequence.Content = append(sequence.Content, node)
		}
		return sequence
	}
	node := &yaml.Node{Kind: yaml.ScalarNode, Value: f.Value.String()}
	if f.Value.Type() == "string" {
		node.SetString(node.Value)
	}
	return node
}
