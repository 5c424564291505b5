"""What must happen at once in Redis, in its own language. All keys of a call belong to one tenant.

Numbers are microseconds of the store's clock: below 2^53, so that Lua counts them exactly.
"""

from typing import Final

_NOW: Final = """
local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local function digits(number) return string.format('%.0f', number) end
"""

ESTABLISH: Final = f"""{_NOW}
-- KEYS: record. ARGV: position.
if redis.call('HEXISTS', KEYS[1], 'gt') == 0 then
  redis.call('HSET', KEYS[1], 'gt', digits(now()), 'lt', ARGV[1])
end
"""

INVALIDATE: Final = f"""{_NOW}
-- KEYS: record. ARGV: target, before ('' for none), position (0 for none), most marks.
local record, target, position = KEYS[1], ARGV[1], tonumber(ARGV[3])
local function read(field) return tonumber(redis.call('HGET', record, field) or '0') end
local function raise(at)
  -- 'n' is the greatest number ever given in this record.
  local number = math.max(now(), math.max(read('n'), read('gt')) + 1)
  redis.call('HSET', record, 'n', digits(number), 'g' .. at, digits(number))
end
if redis.call('HEXISTS', record, 'gt') == 0 then
  raise('t')
  redis.call('HSET', record, 'lt', position)
end
if ARGV[2] ~= '' then
  if tonumber(ARGV[2]) > read('b' .. target) then
    redis.call('HSET', record, 'b' .. target, ARGV[2])
  end
elseif position == 0 or position > read('l' .. target) then
  raise(target)
  if position > 0 then redis.call('HSET', record, 'l' .. target, position) end
end
if redis.call('HLEN', record) > tonumber(ARGV[4]) then
  raise('t')
  local marks, number, most = redis.call('HGETALL', record), read('n'), {{b = 0, l = 0}}
  for i = 1, #marks, 2 do
    local kind = string.sub(marks[i], 1, 1)
    if most[kind] then most[kind] = math.max(most[kind], tonumber(marks[i + 1])) end
  end
  redis.call('DEL', record)
  redis.call('HSET', record, 'n', digits(number), 'gt', digits(number),
    'bt', string.format('%.6f', most.b), 'lt', digits(most.l))
end
"""

WRITE: Final = """
-- KEYS: record, entry, and maybe a vector. ARGV: number, value, time to live in ms, number of targets, the
-- targets, then fields and values of the vector.
local num = tonumber(ARGV[4])
local standing = 0
for i = 1, num do
  local mark = redis.call('HGET', KEYS[1], 'g' .. ARGV[4 + i])
  standing = math.max(standing, tonumber(mark or '0'))
end
if standing ~= tonumber(ARGV[1]) then return 'overtaken' end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
if KEYS[3] then
  redis.call('HSET', KEYS[3], unpack(ARGV, 5 + num))
  redis.call('PEXPIRE', KEYS[3], ARGV[3])
end
return 'stored'
"""
