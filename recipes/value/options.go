package value

import "github.com/go-leaderelection/leaderelection/internal/zk/recipe"

// Option is an option of a [Value]. Every [recipes.Option] is one.
type Option interface{ ApplyValue(*recipe.Setup) }
