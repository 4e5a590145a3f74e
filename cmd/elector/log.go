package main

import (
	"context"
	"io"
	"log/slog"
)

// newLogger returns the logger for the flags --log-format, --log-level and --quiet.
func newLogger(w io.Writer, format, level string, quiet bool) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usage("--log-level %s: not one of debug, info, warn, error", level)
	}
	if quiet {
		l = max(l, slog.LevelWarn)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, usage("--log-format %s: not one of text, json", format)
}

// electionLog returns the logger for an election. Package elector logs each change of the role with level
// Info, so messages of the election with level Info are logged with level Debug.
func (s *settings) electionLog() *slog.Logger {
	return slog.New(infoAsDebug{s.log.Handler()}).WithGroup("election")
}

// infoAsDebug is a handler that replaces the level Info by Debug.
type infoAsDebug struct{ slog.Handler }

func debugIfInfo(l slog.Level) slog.Level {
	if l == slog.LevelInfo {
		return slog.LevelDebug
	}
	return l
}

func (h infoAsDebug) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, debugIfInfo(l))
}

func (h infoAsDebug) Handle(ctx context.Context, r slog.Record) error {
	r.Level = debugIfInfo(r.Level)
	return h.Handler.Handle(ctx, r)
}

func (h infoAsDebug) WithAttrs(attrs []slog.Attr) slog.Handler {
	return infoAsDebug{h.Handler.WithAttrs(attrs)}
}

func (h infoAsDebug) WithGroup(name string) slog.Handler {
	return infoAsDebug{h.Handler.WithGroup(name)}
}
