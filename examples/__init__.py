"""Programs that use Headwater as its users do."""
